// Package exp lists the experiments.
package exp

import (
	"cxkit/lab"
	"cxkit/lab/exp/churn"
	"cxkit/lab/exp/flr"
	"cxkit/lab/exp/fragmentation"
	"cxkit/lab/exp/reclaim"
	"cxkit/lab/exp/rxorder"
	"cxkit/lab/exp/rxpages"
	"cxkit/lab/exp/scrape"
	"cxkit/lab/exp/stats"
	"cxkit/lab/exp/submit"
)

// All are the experiments, in the order in which they are listed.
func All() []*lab.Experiment {
	return []*lab.Experiment{reclaim.Experiment(), flr.Experiment(), submit.Experiment(), stats.Experiment(), churn.Experiment(), scrape.Experiment(), rxpages.Experiment(), rxorder.Experiment(), fragmentation.Experiment()}
}
