from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ("telemetry", "0001_initial"),
    ]

    operations = [
        migrations.AddField(
            model_name="trajectorysample",
            name="reward_parts",
            field=models.JSONField(default=dict),
        ),
        migrations.AddField(
            model_name="trajectorysample",
            name="verdict",
            field=models.TextField(default=""),
        ),
    ]
