"""What several training scripts share: worker processes, command lines, progress, replicas and saved policies."""
