"""Random stories: real jobs, killed, rewound, forked and starved, and at the end compared with the records alone."""
