package prm

// RegisterID names a register of ACCESS_REG.
type RegisterID uint16

// String is the register's name in the PRM, as PMTU.
func (id RegisterID) String() string {
	if r := registerByID(id); r != nil {
		return r.Name
	}
	return numberText("RegisterID", uint64(id))
}
