JOB_FILE = "job.json"  # in the folder of a background job: what its process reads first
