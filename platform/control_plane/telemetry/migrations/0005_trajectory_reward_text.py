from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("telemetry", "0004_trajectory_trainer_values"),
    ]

    operations = [
        migrations.AddField(
            model_name="trajectorysample",
            name="reward_text",
            field=models.TextField(db_default="", default=""),
        ),
    ]
