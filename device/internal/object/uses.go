package object

// Uses are objects that one object holds from its creation to its destruction.
type Uses []*Refs

// Hold holds all.
func (u Uses) Hold() {
	for _, r := range u {
		r.Hold()
	}
}

// Drop lets go of all.
func (u Uses) Drop() {
	for _, r := range u {
		r.Drop()
	}
}
