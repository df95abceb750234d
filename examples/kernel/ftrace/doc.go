// Package ftrace reads what the kernel's tracers print: calls of the function_graph tracer and counts of hist
// triggers. The studies next to it use it in the guest and on the host.
package ftrace
