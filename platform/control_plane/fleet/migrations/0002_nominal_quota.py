from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('fleet', '0001_initial'),
    ]

    operations = [
        migrations.AddField(
            model_name='quota',
            name='nominal_slots',
            field=models.PositiveIntegerField(db_default=0, default=0),
        ),
        migrations.AddField(
            model_name='quota',
            name='lending_limit',
            field=models.PositiveIntegerField(null=True),
        ),
        migrations.AddIndex(
            model_name='lease',
            index=models.Index(fields=['released_at'], name='lease_released_at'),
        ),
    ]
