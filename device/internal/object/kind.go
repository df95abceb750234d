package object

// Kind is a kind of object, as books and firmware's appetite for memory count them.
type Kind uint8

const (
	None Kind = iota
	UAR
	PD
	TransportDomain
	MKey
	EQ
	CQ
	SQ
	RQ
	RMP
	TIS
	TIR
	RQT
	FlowTable
	FlowGroup
	FlowEntry
	FlowCounter
	QCounter
	ModifyHeader
	UMEM
	QP
	Kinds // how many there are
)

var kindNames = [Kinds]string{
	"none", "uar", "pd", "transport domain", "mkey", "eq", "cq", "sq", "rq", "rmp", "tis", "tir", "rqt",
	"flow table", "flow group", "flow entry", "flow counter", "q counter", "modify header", "umem", "qp",
}

func (k Kind) String() string {
	if k < Kinds {
		return kindNames[k]
	}
	return "unknown"
}
