package object

// Refs counts the objects that use an object. Embed it.
type Refs struct{ holders int }

// Hold counts one more user.
func (r *Refs) Hold() { r.holders++ }

// Drop counts one user less. A drop without a hold is a mistake of the model.
func (r *Refs) Drop() {
	if r.holders == 0 {
		panic("object: dropped more often than held")
	}
	r.holders--
}

// Held reports whether anybody uses the object.
func (r *Refs) Held() bool { return r.holders != 0 }

// Holders is the number of users.
func (r *Refs) Holders() int { return r.holders }
