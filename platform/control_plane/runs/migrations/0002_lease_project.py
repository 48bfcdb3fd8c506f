from django.db import migrations


class Migration(migrations.Migration):
    """Fill the project of open leases, so that they count toward the quota of their project."""

    dependencies = [
        ("runs", "0001_initial"),
        ("fleet", "0003_project_quota"),
    ]

    operations = [
        migrations.RunSQL(
            "UPDATE fleet_lease SET project_id = runs_run.project_id FROM runs_run "
            "WHERE runs_run.id = fleet_lease.run AND fleet_lease.released_at IS NULL",
            migrations.RunSQL.noop,
        ),
    ]
