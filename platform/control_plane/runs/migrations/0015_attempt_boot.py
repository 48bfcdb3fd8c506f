from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ("runs", "0014_evaluators"),
    ]

    operations = [
        migrations.AddField(
            model_name="attempt",
            name="boot",
            field=models.JSONField(db_default=models.Value({}, models.JSONField()), default=dict),
        ),
    ]
