from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ("catalog", "0012_model_checks"),
    ]

    operations = [
        migrations.AddField(
            model_name="datasetvalidation",
            name="bytes_seen",
            field=models.BigIntegerField(default=0),
        ),
        migrations.AddField(
            model_name="datasetvalidation",
            name="rows_seen",
            field=models.BigIntegerField(default=0),
        ),
    ]
