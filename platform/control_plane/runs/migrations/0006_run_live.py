from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("runs", "0005_pause_and_lineage")]

    operations = [migrations.AddField(model_name="run", name="live", field=models.JSONField(default=dict))]
