from django.db import migrations, models

import control_plane.catalog.models


class Migration(migrations.Migration):

    dependencies = [
        ("catalog", "0009_model_imports"),
    ]

    operations = [
        migrations.AddField(
            model_name="checkpoint",
            name="kind",
            field=models.CharField(
                choices=control_plane.catalog.models.checkpoint_kind_choices,
                db_default="training",
                default="training",
                max_length=16,
            ),
        ),
    ]
