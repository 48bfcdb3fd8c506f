import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("runs", "0002_lease_project"),
    ]

    operations = [
        migrations.AddField("run", "promised_start_at", models.DateTimeField(null=True)),
        migrations.CreateModel(
            name="RunForecast",
            fields=[
                (
                    "run",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="forecast",
                        serialize=False,
                        to="runs.run",
                    ),
                ),
                ("made_at", models.DateTimeField()),
                ("measure", models.CharField(blank=True, default="", max_length=200)),
                ("samples", models.JSONField(default=list)),
                ("duration_p90", models.FloatField(null=True)),
                ("start_p50_at", models.DateTimeField(null=True)),
                ("start_p90_at", models.DateTimeField(null=True)),
                ("start_message", models.CharField(blank=True, default="", max_length=200)),
                ("end_p50_at", models.DateTimeField(null=True)),
                ("end_p90_at", models.DateTimeField(null=True)),
                ("end_source", models.CharField(blank=True, default="", max_length=16)),
                ("end_message", models.CharField(blank=True, default="", max_length=200)),
            ],
        ),
    ]
