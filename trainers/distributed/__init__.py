"""The ranks of one trainer job: process group, launcher, FSDP2 sharding, packing of sequences onto ranks."""
