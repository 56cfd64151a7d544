"""The public face: what others may build on, a page for each subject.

Names on these pages stay, or their end is announced in the changelog a release before. All other modules may change at
any time. No page loads the clients of Spark, Kafka or Valkey.
"""
