"""Parties that keep their rows at home: their votes, and questions that no party can read."""
