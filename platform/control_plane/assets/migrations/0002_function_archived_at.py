from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("assets", "0001_initial")]

    operations = [
        migrations.AddField(
            model_name="function", name="archived_at", field=models.DateTimeField(null=True)
        ),
    ]
