from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("accounts", "0008_tested_rewards")]

    operations = [
        migrations.AddField("projectsecret", "jobs", models.JSONField(db_default=[], default=list)),
    ]
