"""The verbs that plan and explain: what is planned, on which devices, and what comes back."""
