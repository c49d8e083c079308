"""OpenAI's dialect: its fields, its routes, its bodies."""
