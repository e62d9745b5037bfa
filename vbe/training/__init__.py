"""The loops that drive an agent through an environment, and what makes their runs survive."""
