from django.db import migrations


class Migration(migrations.Migration):
    """Losses of users are allowed per pool from here on (fleet.Pool.trainer_code)."""

    contracts = "no released code reads project.trainer_code"
    dependencies = [("accounts", "0010_login_addresses")]

    operations = [
        migrations.RemoveField("project", "trainer_code"),
    ]
