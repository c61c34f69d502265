"""What each test costs: CPU with all processes that it starts, processes and JVMs started, and wall time.

``make test-costs`` runs the tests with the plugin (``plugin``) and prints the table (``table``). ``meter`` measures.

It can't see a container's CPU, which belongs to the engine. A cluster that stays warm works a little during every
test: that work is charged to the test that runs meanwhile. A process that lives less than 50 ms may not be counted as a
start; its CPU is.
"""
