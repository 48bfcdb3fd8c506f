from django.db import migrations, models


class Migration(migrations.Migration):
    """The spec as it was written. Runs that were submitted before have none."""

    dependencies = [("runs", "0003_run_forecast")]

    operations = [migrations.AddField("run", "submitted_spec", models.JSONField(null=True))]
