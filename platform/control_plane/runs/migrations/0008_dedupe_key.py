from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ("runs", "0007_drafts_and_engines"),
    ]

    operations = [
        migrations.AddField(
            model_name="run",
            name="dedupe_key",
            field=models.CharField(max_length=200, null=True),
        ),
        migrations.AddField(
            model_name="run",
            name="dedupe_sha256",
            field=models.CharField(blank=True, default="", max_length=64),
        ),
        migrations.AddConstraint(
            model_name="run",
            constraint=models.UniqueConstraint(fields=("project", "dedupe_key"), name="one_run_per_dedupe_key"),
        ),
    ]
