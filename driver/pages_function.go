package driver

import "cxkit/stats"

// FunctionPages returns what firmware has been lent for each function that the NIC serves. It asks the card
// nothing; any goroutine may call it.
func (n *NIC) FunctionPages() []stats.FunctionPages {
	books := n.hca.Pages.Books()
	list := make([]stats.FunctionPages, 0, len(books.Functions))
	for _, f := range books.Functions {
		list = append(list, stats.FunctionPages{
			Function: f.ID, Type: f.Type.String(), Out: f.Out,
			Given: f.Given, Returned: f.Returned, GiveFails: f.GiveFails, TakeFails: f.TakeFails,
		})
	}
	return list
}
