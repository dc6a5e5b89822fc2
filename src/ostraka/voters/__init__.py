"""(draft)"""
