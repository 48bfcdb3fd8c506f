from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ("catalog", "0013_validation_progress"),
    ]

    operations = [
        migrations.AddField(
            model_name="datasetmeasurement",
            name="bytes_seen",
            field=models.BigIntegerField(default=0),
        ),
    ]
