package report

import (
	"encoding/xml"
	"io"
	"math"
	"strings"
	"testing"
	"time"
)

func TestTable(t *testing.T) {
	tab := Table{Columns: []string{"name", "n", "x", "d"}}
	tab.Add("a,b", uint64(7), 1234.5678, 1234567*time.Nanosecond)
	var text, csv strings.Builder
	if err := tab.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	if want := "  name  n     x       d\n   a,b  7  1235  1.23ms\n"; text.String() != want {
		t.Errorf("text %q, want %q", text.String(), want)
	}
	if err := tab.WriteCSV(&csv); err != nil {
		t.Fatal(err)
	}
	if want := "name,n,x,d\n\"a,b\",7,1234.5678,1234567\n"; csv.String() != want {
		t.Errorf("CSV %q, want %q", csv.String(), want)
	}
	if tab.Float(0, "n") != 7 || tab.Float(0, "d") != 1234567 || tab.Float(0, "name") != 0 || tab.Float(0, "none") != 0 {
		t.Error("values as numbers are wrong")
	}
	defer func() {
		if recover() == nil {
			t.Error("a row that does not fit was taken")
		}
	}()
	tab.Add(1)
}

func TestPlotIsWellFormedAndToScale(t *testing.T) {
	p := Plot{
		Title: "a < b & c", Y: "ns", Groups: []string{"one", "two"},
		Series: []Series{{"before", []float64{1000, 10}}, {"after", []float64{0, 100}}},
	}
	var b strings.Builder
	if err := p.WriteSVG(&b); err != nil {
		t.Fatal(err)
	}
	d := xml.NewDecoder(strings.NewReader(b.String()))
	var heights []string
	for {
		tok, err := d.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := tok.(xml.StartElement); ok && e.Name.Local == "rect" && len(e.Attr) == 5 && e.Attr[2].Name.Local == "width" && e.Attr[2].Value != "12" {
			heights = append(heights, e.Attr[3].Value)
		}
	}
	// The scale goes from 1 to 1000: 290 pixels.
	if got := strings.Join(heights, " "); got != "290.0 0.0 96.7 193.3" {
		t.Errorf("heights of bars %s", got)
	}
}

func TestPlotRefusesWhatItCannotDraw(t *testing.T) {
	g := []string{"g"}
	for name, p := range map[string]Plot{
		"nothing": {}, "no series": {Groups: g},
		"too few values": {Groups: g, Series: []Series{{"s", nil}}},
		"NaN":            {Groups: g, Series: []Series{{"s", []float64{math.NaN()}}}},
		"infinity":       {Groups: g, Series: []Series{{"s", []float64{math.Inf(1)}}}},
		"negative":       {Groups: g, Series: []Series{{"s", []float64{-1}}}},
	} {
		if err := p.WriteSVG(io.Discard); err == nil {
			t.Errorf("%s was drawn", name)
		}
	}
	for name, v := range map[string]float64{"zero": 0, "one": 1, "ten": 10, "tiny": 1e-9, "huge": 1e300} {
		if err := (Plot{Groups: g, Series: []Series{{"s", []float64{v}}}}).WriteSVG(io.Discard); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
