from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("assets", "0002_function_archived_at")]

    operations = [
        migrations.AddField(
            model_name="datasetversion",
            name="with_pair",
            field=models.JSONField(db_default=models.Value({}, models.JSONField()), default=dict),
        ),
    ]
