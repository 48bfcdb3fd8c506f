from django.db import migrations, models


class Migration(migrations.Migration):
    """Columns of a saved view. Unknown for views that were saved before."""

    dependencies = [("experiments", "0001_initial")]

    operations = [migrations.AddField("savedview", "columns", models.JSONField(null=True))]
