from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("runs", "0002_job_missing_at")]

    operations = [
        migrations.AddField(
            model_name="attempt", name="tokens_generated", field=models.BigIntegerField(default=0)
        )
    ]
