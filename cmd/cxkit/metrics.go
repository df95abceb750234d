package main

import (
	"fmt"

	"cxkit/metrics"
)

// metricsFlags are the flags of commands that answer Prometheus.
type metricsFlags struct {
	Metrics       string `placeholder:"ADDRESS" help:"Serve metrics for Prometheus at http://ADDRESS/metrics, for example 127.0.0.1:9101."`
	MetricsQueues bool   `help:"Metrics have the counters of single queues, too."`
}

// serve opens the server, if it is wanted, and says where it is. later registers its end.
func (f *metricsFlags) serve(say func(string), later func(string, func() error), targets ...metrics.Target) error {
	if f.Metrics == "" {
		return nil
	}
	server, err := metrics.Serve(f.Metrics, metrics.NewCollector(metrics.Options{Queues: f.MetricsQueues}, targets...))
	if err != nil {
		return err
	}
	later("metrics", server.Close)
	say(fmt.Sprintf("cxkit: metrics at http://%s/metrics", server.Addr()))
	return nil
}
