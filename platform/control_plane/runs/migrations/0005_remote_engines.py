from django.db import migrations, models


class Migration(migrations.Migration):
    """Engines on other nodes than the trainer's. Jobs without a node are on their attempt's node."""

    dependencies = [("fleet", "0006_node_peers"), ("runs", "0004_submitted_spec")]

    operations = [
        migrations.AddField(
            "attempt", "peer_address", models.CharField(blank=True, db_default="", default="", max_length=45)
        ),
        migrations.AddField("attempt", "certificate", models.TextField(blank=True, db_default="", default="")),
        migrations.AddField("attempt", "private_key", models.TextField(blank=True, db_default="", default="")),
        migrations.AddField(
            "job",
            "node",
            models.ForeignKey(null=True, on_delete=models.PROTECT, related_name="remote_jobs", to="fleet.node"),
        ),
    ]
