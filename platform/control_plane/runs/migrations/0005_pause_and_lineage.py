import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("catalog", "0001_initial"),
        ("runs", "0004_run_functions"),
    ]

    operations = [
        migrations.AddField(model_name="run", name="paused_seconds", field=models.FloatField(default=0.0)),
        migrations.AddField(model_name="run", name="tags", field=models.JSONField(default=list)),
        migrations.AddField(
            model_name="run",
            name="relation",
            field=models.CharField(blank=True, default="", max_length=8),
        ),
        migrations.AddField(
            model_name="run",
            name="parent",
            field=models.ForeignKey(
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="children",
                to="runs.run",
            ),
        ),
        migrations.AddField(
            model_name="run",
            name="resume_checkpoint",
            field=models.ForeignKey(
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="+",
                to="catalog.checkpoint",
            ),
        ),
    ]
