from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("runs", "0007_budgets"),
    ]

    operations = [
        migrations.AddField(
            model_name="run",
            name="pending_code",
            field=models.CharField(blank=True, db_default="", default="", max_length=20),
        ),
    ]
