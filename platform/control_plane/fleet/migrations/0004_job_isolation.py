from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('fleet', '0003_model_checks'),
    ]

    operations = [
        migrations.AddField(
            model_name='node',
            name='job_isolation',
            field=models.CharField(db_default='none', default='none', max_length=12),
        ),
        migrations.AddField(
            model_name='node',
            name='job_isolation_reason',
            field=models.CharField(blank=True, db_default='', default='', max_length=400),
        ),
    ]
