package report

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
)

// Plot is groups of bars on a logarithmic scale. A bar of 0 has no height.
type Plot struct {
	Title  string
	Y      string   // what the bars are, with the unit
	Groups []string // along the x axis
	Series []Series
}

// Series is one bar in each group.
type Series struct {
	Name   string
	Values []float64 // one a group
}

// Sizes in pixels, and the colours of the series (Okabe and Ito's, for all eyes).
const (
	plotWidth, plotHeight = 720, 400
	left, right           = 80, 20
	top, bottom           = 60, 50
)

func colour(i int) string {
	return []string{"#d55e00", "#0072b2", "#009e73", "#cc79a7", "#e69f00"}[i%5]
}

// WriteSVG draws the plot.
func (p Plot) WriteSVG(w io.Writer) error {
	if len(p.Groups) == 0 || len(p.Series) == 0 {
		return errors.New("plot: nothing to draw")
	}
	low, high, err := p.decades()
	if err != nil {
		return err
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">`+"\n", plotWidth, plotHeight)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="white"/>`+"\n")
	fmt.Fprintf(&b, `<text x="%d" y="20" font-size="15">%s</text>`+"\n", left, escape(p.Title))
	fmt.Fprintf(&b, `<text x="14" y="%d" transform="rotate(-90 14 %d)" text-anchor="middle">%s</text>`+"\n", plotHeight/2, plotHeight/2, escape(p.Y))
	height := func(v float64) float64 {
		if v <= 0 {
			return 0
		}
		return (math.Log10(v) - float64(low)) / float64(high-low) * (plotHeight - top - bottom)
	}
	for d := low; d <= high; d++ {
		y := plotHeight - bottom - height(math.Pow10(d))
		fmt.Fprintf(&b, `<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="#ddd"/>`+"\n", left, y, plotWidth-right, y)
		fmt.Fprintf(&b, `<text x="%d" y="%.1f" text-anchor="end">1e%d</text>`+"\n", left-6, y+4, d)
	}
	group := float64(plotWidth-left-right) / float64(len(p.Groups))
	bar := group * 0.8 / float64(len(p.Series))
	for g, name := range p.Groups {
		x := left + group*float64(g)
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n", x+group/2, plotHeight-bottom+18, escape(name))
		for s := range p.Series {
			v := p.Series[s].Values[g]
			at, h := x+group*0.1+bar*float64(s), height(v)
			fmt.Fprintf(&b, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"/>`+"\n", at, plotHeight-bottom-h, bar*0.95, h, colour(s))
			fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" text-anchor="middle" font-size="10">%s</text>`+"\n", at+bar/2, plotHeight-bottom-h-4, text(v))
		}
	}
	for s, series := range p.Series {
		x := left + 170*s
		fmt.Fprintf(&b, `<rect x="%d" y="32" width="12" height="12" fill="%s"/><text x="%d" y="43">%s</text>`+"\n", x, colour(s), x+18, escape(series.Name))
	}
	b.WriteString("</svg>\n")
	_, err = io.WriteString(w, b.String())
	return err
}

// decades are the powers of ten that the scale begins and ends with. The smallest bar has a height.
func (p Plot) decades() (low, high int, err error) {
	least, most := math.Inf(1), 0.0
	for _, s := range p.Series {
		if len(s.Values) != len(p.Groups) {
			return 0, 0, fmt.Errorf("plot: %s has %d values for %d groups", s.Name, len(s.Values), len(p.Groups))
		}
		for _, v := range s.Values {
			if math.IsNaN(v) || math.IsInf(v, 0) || v < 0 {
				return 0, 0, fmt.Errorf("plot: %s has a value of %v", s.Name, v)
			}
			if v > 0 {
				least, most = min(least, v), max(most, v)
			}
		}
	}
	if most == 0 {
		return 0, 1, nil
	}
	low = int(math.Floor(math.Log10(least)))
	if math.Pow10(low) == least {
		low--
	}
	return low, max(int(math.Ceil(math.Log10(most))), low+1), nil
}

func escape(s string) string {
	var b strings.Builder
	if err := xml.EscapeText(&b, []byte(s)); err != nil {
		return ""
	}
	return b.String()
}
