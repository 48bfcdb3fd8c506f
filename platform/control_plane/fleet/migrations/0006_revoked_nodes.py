import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("fleet", "0005_pools_of_teams")]

    operations = [
        migrations.AlterField(
            "node",
            "pool",
            models.ForeignKey(
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="nodes",
                to="fleet.pool",
            ),
        ),
        migrations.AddConstraint(
            "node",
            models.CheckConstraint(
                condition=models.Q(("pool__isnull", False), ("liveness", "LOST"), _connector="OR"),
                name="revoked_node_is_lost",
            ),
        ),
    ]
