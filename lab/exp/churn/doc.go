// Package churn is experiment E4: full listings of statistics in many loops, while functions get other numbers of
// channels, virtual functions are closed, reset and opened again, and the e-switch goes from one mode to the
// other. No command fails, nothing is warned of and nothing is left behind.
package churn
