package driver

import "cxkit/driver/internal/fwpages"

// PageBooks are the pages of 4096 bytes that firmware has been lent.
type PageBooks struct {
	Out   int // pages that firmware has, or may have
	Hosts int // host pages (Config.HostPage) of which it has something
	// Given and Returned are pages since Open; Released are those that were freed because their function
	// was reset; Doubtful may be with firmware or not.
	Given, Returned, Released, Doubtful uint64
}

// PageBooks returns what firmware has.
func (n *NIC) PageBooks() PageBooks {
	b := n.hca.Books().Pages
	return PageBooks{
		Out: b.Out, Hosts: b.Hosts, Given: b.Given, Returned: b.Returned, Released: b.Released, Doubtful: b.Doubtful,
	}
}

// ManagePages lends firmware pages for another function of the card, too, when it asks for them.
func (n *NIC) ManagePages(function uint16) { n.hca.Pages.Enable(fwpages.Function{ID: function}) }
