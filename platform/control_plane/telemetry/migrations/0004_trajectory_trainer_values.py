from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("telemetry", "0003_trajectory_token_chars"),
    ]

    operations = [
        migrations.AddField(
            model_name="trajectorytokens",
            name="trainer_logprobs",
            field=models.BinaryField(default=b""),
        ),
        migrations.AddField(
            model_name="trajectorytokens",
            name="advantages",
            field=models.BinaryField(default=b""),
        ),
    ]
