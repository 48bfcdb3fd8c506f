from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("fleet", "0008_slot_readings"),
    ]

    operations = [
        migrations.AddField(
            model_name="node",
            name="provider",
            field=models.CharField(db_default="manual", default="manual", max_length=20),
        ),
        migrations.AddField(
            model_name="node",
            name="provider_job",
            field=models.CharField(blank=True, db_default="", default="", max_length=120),
        ),
        migrations.AddField(
            model_name="node",
            name="partition",
            field=models.CharField(blank=True, db_default="", default="", max_length=120),
        ),
        migrations.AddField(
            model_name="node",
            name="account",
            field=models.CharField(blank=True, db_default="", default="", max_length=120),
        ),
        migrations.AddField(
            model_name="node",
            name="ends_at",
            field=models.DateTimeField(null=True),
        ),
    ]
