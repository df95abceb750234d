package device

import (
	"cxkit/device/internal/command"
	"cxkit/device/internal/object"
	"cxkit/device/internal/queue"
	"cxkit/prm"
	"cxkit/trace"
)

// queueHalf is a function's queues. The engine owns it.
type queueHalf struct {
	env  *queue.Env
	cqs  object.Table[*queue.CQ]
	rqs  object.Table[*queue.RQ]
	sqs  object.Table[*queue.SQ]
	rmps object.Table[*rmp]
	tiss object.Table[*tis]
	qps  object.Table[*qp]

	umems     object.Table[*umem]
	umemPages int // of all of them
	// stopped: fast teardown is under way, nothing moves.
	stopped bool
}

// tis is a transport interface send.
type tis struct {
	object.Refs
	context prm.TISContext
}

// Limits of queues, as log2 of their numbers. Objects cost memory of host and model only when they are
// made.
const (
	logMaxCQ     = 16
	logMaxRQ     = 16
	logMaxSQ     = 16
	logMaxTIS    = 12
	logMaxRMP    = 16
	logMaxCQSize = 22
	logMaxWQSize = 15
	minRQStride  = 4
	maxRQStride  = 13
)

// queueCaps sets what this file's objects can do.
func queueCaps(c *capabilities) {
	g := &c.General
	g.LogMaxCQ, g.LogMaxCQSz = logMaxCQ, logMaxCQSize
	g.LogMaxRQ, g.LogMaxSQ, g.LogMaxTIS = logMaxRQ, logMaxSQ, logMaxTIS
	g.LogMaxWQSz = logMaxWQSize
	g.LogMinStrideSzRQ, g.LogMaxStrideSzRQ = minRQStride, maxRQStride
	g.LogMinStrideSzSQ, g.LogMaxStrideSzSQ = queue.LogBB, queue.LogBB
	g.MaxWQESzSQ, g.MaxWQESzRQ = 1024, 512
	g.BasicCyclicRcvWQE = true
	g.CQOI, g.CQModeration, g.CQPeriodModeModify, g.CQPeriodStartFromCQE = true, true, true, true
	g.CQEVersion = 1
	g.CQResize = true
	g.CQECompression, g.MiniCQERespStrideIndex = true, true
	g.CQECompressionMaxNum = queue.MaxMini
	g.StridingRQ, g.ExtStrideNumRange, g.UMRPtrRLKY = true, true, true
	g.LogMaxRMP = logMaxRMP
	g.EthNetOffloads = true
	g.CQE128Always = true
	g.VNICEnvCQOverrun, g.VNICEnvQueueCounters = true, true
	g.ModifyRQCounterSetID = true

	e := &c.Ethernet
	e.CsumCap, e.VLANCap, e.WQEVLANInsert = true, true, true
	e.CQEChecksumFull = true
	e.WQEInlineMode = inlineNotRequired
	e.MaxLSOCap = queue.LogMaxLSO
	e.RegUMRSQ = true
	e.EnhancedMultiPktSendWQE = true
	e.ScatterFCS = true
}

// Values of wqe_inline_mode: min_wqe_inline_mode of the vport context says which headers have to be in the WQE,
// or none has to be.
const (
	inlineByVport     = 1
	inlineNotRequired = 2
)

func (f *function) queueHandlers() command.Table {
	const ready = command.Initialised
	return command.Table{
		prm.OpCreateCQ:  {Handle: f.createCQ, Phase: ready, MinIn: prm.CreateCQInSize, MinOut: 12, Creates: object.CQ},
		prm.OpModifyCQ:  {Handle: f.modifyCQ, Phase: ready, MinIn: prm.ModifyCQInSize},
		prm.OpQueryCQ:   {Handle: f.queryCQ, Phase: ready},
		prm.OpDestroyCQ: {Handle: f.destroyCQ, Phase: ready},

		prm.OpCreateRQ:  {Handle: f.createRQ, Phase: ready, MinIn: prm.CreateRQInSize, MinOut: 12, Creates: object.RQ},
		prm.OpModifyRQ:  {Handle: f.modifyRQ, Phase: ready, MinIn: prm.ModifyRQInSize},
		prm.OpQueryRQ:   {Handle: f.queryRQ, Phase: ready},
		prm.OpDestroyRQ: {Handle: f.destroyRQ, Phase: ready},

		prm.OpCreateSQ:  {Handle: f.createSQ, Phase: ready, MinIn: prm.CreateSQInSize, MinOut: 12, Creates: object.SQ},
		prm.OpModifySQ:  {Handle: f.modifySQ, Phase: ready, MinIn: prm.ModifySQInSize},
		prm.OpQuerySQ:   {Handle: f.querySQ, Phase: ready},
		prm.OpDestroySQ: {Handle: f.destroySQ, Phase: ready},

		prm.OpCreateRMP:  {Handle: f.createRMP, Phase: ready, MinIn: prm.CreateRMPInSize, MinOut: 12, Creates: object.RMP},
		prm.OpModifyRMP:  {Handle: f.modifyRMP, Phase: ready, MinIn: prm.ModifyRMPInSize},
		prm.OpQueryRMP:   {Handle: f.queryRMP, Phase: ready},
		prm.OpDestroyRMP: {Handle: f.destroyRMP, Phase: ready},

		prm.OpCreateQP:   {Handle: f.createQP, Phase: ready, MinIn: prm.CreateQPInSize, MinOut: 12, Creates: object.QP},
		prm.OpRst2InitQP: {Handle: f.rst2InitQP, Phase: ready, MinIn: prm.Rst2InitQPInSize},
		prm.OpToRstQP:    {Handle: f.toRstQP, Phase: ready},
		prm.OpQueryQP:    {Handle: f.queryQP, Phase: ready},
		prm.OpDestroyQP:  {Handle: f.destroyQP, Phase: ready},

		prm.OpCreateUMEM:  {Handle: f.createUMEM, Phase: ready, MinIn: prm.CreateUMEMInSize, MinOut: 12, Creates: object.UMEM},
		prm.OpDestroyUMEM: {Handle: f.destroyUMEM, Phase: ready},

		prm.OpCreateTIS:  {Handle: f.createTIS, Phase: ready, MinIn: prm.CreateTISInSize, MinOut: 12, Creates: object.TIS},
		prm.OpModifyTIS:  {Handle: f.modifyTIS, Phase: ready, MinIn: prm.ModifyTISInSize},
		prm.OpQueryTIS:   {Handle: f.queryTIS, Phase: ready},
		prm.OpDestroyTIS: {Handle: f.destroyTIS, Phase: ready},
	}
}

// resetQueues forgets all queues.
func (f *function) resetQueues() {
	f.dropPending()
	n := &f.counters
	f.queueHalf = queueHalf{
		env: &queue.Env{Events: f.events, Tunnels: &f.tunnels, Counters: queue.Counters{
			ErrorQueues: &n.errorQueues, TooSmall: &n.wqeTooSmall, CQOverrun: &n.cqOverrun,
		}, Moderator: f.moderator()},
		cqs:  object.New[*queue.CQ](1, 1<<logMaxCQ-1),
		rqs:  object.New[*queue.RQ](1, 1<<logMaxRQ-1),
		sqs:  object.New[*queue.SQ](1, 1<<logMaxSQ-1),
		rmps: object.New[*rmp](1, 1<<logMaxRMP-1),
		tiss: object.New[*tis](1, 1<<logMaxTIS-1),
		qps:  object.New[*qp](firstQP, firstQP),

		umems: object.New[*umem](1, 1<<logMaxUMEM-1),
	}
}

// stopTraffic makes the function send and receive nothing any more until it is reset.
func (f *function) stopTraffic() {
	f.dropPending()
	f.env.Stop()
	f.stopped = true
}

// countObjects adds the objects of the data plane.
func (f *function) countObjects(n *[object.Kinds]int) {
	n[object.CQ] += f.cqs.Len()
	n[object.RQ] += f.rqs.Len()
	n[object.SQ] += f.sqs.Len()
	n[object.RMP] += f.rmps.Len()
	n[object.TIS] += f.tiss.Len()
	n[object.QP] += f.qps.Len()
	n[object.UMEM] += f.umems.Len()
	f.countSteering(n)
}

// begin lets the function's queues use its memory until the step ends. false: no host is attached.
func (f *function) begin() bool {
	if f.mem == nil || f.stopped {
		return false
	}
	f.enter()
	f.env.Begin(f.mem, f.keys)
	f.env.SetTime(f.card.now, f.timestamp(), f.realTime())
	return true
}

// sqDoorbell takes note that an SQ has work. What is posted is in its doorbell record.
func (f *function) sqDoorbell(uar, sqn uint32, index uint16) {
	f.log.Doorbell(trace.BellSQ, sqn, uint32(index))
	q, ok := f.sqs.Get(sqn)
	if !ok || q.Config().UAR != uar {
		f.log.Note("doorbell of an SQ that does not exist or uses another UAR")
		return
	}
	if q.State() == prm.QueueStateRST {
		f.log.Note("doorbell of an SQ in RST")
		return
	}
	f.pend(q)
}

// cqArm arms a CQ.
func (f *function) cqArm(uar, cqn, word uint32) {
	f.log.Doorbell(trace.BellCQArm, cqn, word)
	q, ok := f.cqs.Get(cqn)
	if !ok || q.Config().UAR != uar {
		f.log.Note("doorbell of a CQ that does not exist or uses another UAR")
		return
	}
	q.Arm(word)
}

func (f *function) createCQ(c *command.Call) command.Result {
	var in prm.CreateCQIn
	in.Get(c.In)
	ctx := &in.Context
	if ctx.LogCQSize > logMaxCQSize {
		return refuse(prm.StatusBadParameter, synLogSize, "log_cq_size %d: at most %d", ctx.LogCQSize, logMaxCQSize)
	}
	if ctx.APUCQ || ctx.SCQEBreakModerationEn {
		return refuse(prm.StatusBadParameter, synCQFeature, "APU and solicited break are not supported")
	}
	// Compression: the basic layout, in rings of CQEs of 64 bytes that wrap.
	if ctx.CQECompEn && (ctx.CQECompressionLayout != 0 || ctx.MiniCQEResFormat == 2 || ctx.CC || ctx.CQESz != 0 ||
		ctx.MiniCQEResFormat == queue.MiniChecksumStride && !f.caps.General.MiniCQERespStrideIndex) {
		return refuse(prm.StatusBadParameter, synCQFeature, "compression with layout %d, format %d, cc %v, cqe_sz %d",
			ctx.CQECompressionLayout, ctx.MiniCQEResFormat, ctx.CC, ctx.CQESz)
	}
	if ctx.CQESz > 2 {
		return refuse(prm.StatusBadParameter, synCQESize, "cqe_sz %d", ctx.CQESz)
	}
	stride := uint8(6)
	if ctx.CQESz != 0 {
		stride = 7
	}
	eq := f.events.Get(uint8(ctx.EQN))
	if ctx.EQN > 255 || eq == nil {
		return fault(prm.StatusBadResource, synNoEQ)
	}
	u, ok := f.uars.Get(ctx.UARPage)
	if !ok {
		return fault(prm.StatusBadResource, synNoUAR)
	}
	size := 1 << (ctx.LogCQSize + stride)
	var uses object.Uses
	record, r := f.recordMemory(place{ctx.DBRUMEMValid, ctx.DBRUMEMID, ctx.DBRAddr}, &uses)
	if !r.OK() {
		return r
	}
	buffer, r := f.ringMemory(place{in.CQUMEMValid, in.CQUMEMID, in.CQUMEMOffset}, c.In[prm.CreateCQInSize:], ringShape{
		bytes: size, logPage: ctx.LogPageSize, offset: ctx.PageOffset, offsetUnits: 64,
	}, true, &uses)
	if !r.OK() {
		return r
	}
	q := queue.NewCQ(f.env, queue.CQConfig{
		Buffer: buffer, Record: record, Uses: uses,
		LogSize: ctx.LogCQSize, Stride: stride, Collapsed: ctx.CC, OverrunIgnore: ctx.OI,
		Compress: ctx.CQECompEn, Format: ctx.MiniCQEResFormat,
		EQN: uint8(ctx.EQN), UAR: ctx.UARPage, Context: *ctx,
	})
	if q.Number, ok = f.cqs.Add(q); !ok {
		return fault(prm.StatusLimitExceeded, synNoNumber)
	}
	uses.Hold()
	eq.Hold()
	u.Hold()
	f.startCQ(q)
	c.Reply(&prm.CreateCQOut{CQN: q.Number})
	return command.Result{}
}

// Values of MODIFY_CQ's op_mod, and the fields of a resize.
const (
	cqModify = 0
	cqResize = 1

	resizeLogSize    = 1 << 0
	resizePageOffset = 1 << 1
	resizePageSize   = 1 << 2
)

// resizeCQ gives a CQ another ring.
func (f *function) resizeCQ(q *queue.CQ, in *prm.ModifyCQIn, list []byte) command.Result {
	fields, ctx, config := uint32(in.ModifyFieldSelect), &in.Context, q.Config()
	if fields&^(resizeLogSize|resizePageOffset|resizePageSize) != 0 || in.CQUMEMValid {
		return refuse(prm.StatusBadParameter, synModifyBits, "resize_field_select %#x", fields)
	}
	next := config.Context
	if fields&resizeLogSize != 0 {
		next.LogCQSize = ctx.LogCQSize
	}
	if fields&resizePageOffset != 0 {
		next.PageOffset = ctx.PageOffset
	}
	if fields&resizePageSize != 0 {
		next.LogPageSize = ctx.LogPageSize
	}
	if next.LogCQSize > logMaxCQSize {
		return refuse(prm.StatusBadParameter, synLogSize, "log_cq_size %d: at most %d", next.LogCQSize, logMaxCQSize)
	}
	if config.Collapsed {
		return refuse(prm.StatusBadParameter, synCQFeature, "a collapsed CQ has one entry")
	}
	size := 1 << (next.LogCQSize + config.Stride)
	pages, r := ringPages(list, ringShape{bytes: size, logPage: next.LogPageSize, offset: next.PageOffset, offsetUnits: 64})
	if !r.OK() {
		return r
	}
	if !f.begin() || !q.Resize(queue.NewBuffer(pages, next.LogPageSize+12, size), next.LogCQSize) {
		return refuse(prm.StatusBadResourceState, synCQResize, "what CQ %#x holds does not fit, or it has failed", q.Number)
	}
	f.env.Flush()
	config.Context = next
	return command.Result{}
}

// cqFields are the fields that MODIFY_CQ may change with op_mod 0.
const cqFields = prm.ModifyCQPeriod | prm.ModifyCQMaxCount | prm.ModifyCQOI | prm.ModifyCQEQN | prm.ModifyCQPeriodMode

func (f *function) modifyCQ(c *command.Call) command.Result {
	var in prm.ModifyCQIn
	in.Get(c.In)
	q, ok := f.cqs.Get(in.CQN)
	if !ok {
		return refuse(prm.StatusBadResource, synNoCQ, "no CQ %#x", in.CQN)
	}
	switch c.OpMod {
	case cqModify:
	case cqResize:
		return f.resizeCQ(q, &in, c.In[prm.ModifyCQInSize:])
	default:
		return fault(prm.StatusBadOperation, synOpMod)
	}
	fields := in.ModifyFieldSelect
	if fields&^cqFields != 0 {
		return refuse(prm.StatusBadParameter, synModifyBits, "modify_field_select %#x", uint32(fields))
	}
	config, ctx := q.Config(), &in.Context
	if fields&prm.ModifyCQEQN != 0 {
		eq := f.events.Get(uint8(ctx.EQN))
		if ctx.EQN > 255 || eq == nil {
			return fault(prm.StatusBadResource, synNoEQ)
		}
		eq.Hold()
		f.events.Get(config.EQN).Drop()
		config.EQN, config.Context.EQN = uint8(ctx.EQN), ctx.EQN
	}
	// Fields that are not selected keep their values: Linux sends zeros in them (reference 06 §2 step 2).
	if fields&prm.ModifyCQPeriod != 0 {
		config.Context.CQPeriod = ctx.CQPeriod
	}
	if fields&prm.ModifyCQMaxCount != 0 {
		config.Context.CQMaxCount = ctx.CQMaxCount
	}
	if fields&prm.ModifyCQPeriodMode != 0 {
		config.Context.CQPeriodMode = ctx.CQPeriodMode
	}
	if fields&prm.ModifyCQOI != 0 {
		config.OverrunIgnore, config.Context.OI = ctx.OI, ctx.OI
	}
	if f.begin() {
		q.Moderated()
	}
	return command.Result{}
}

func (f *function) queryCQ(c *command.Call) command.Result {
	n := number24(c)
	q, ok := f.cqs.Get(n)
	if !ok {
		return refuse(prm.StatusBadResource, synNoCQ, "no CQ %#x", n)
	}
	c.Reply(&prm.QueryCQOut{Context: q.Query(), PAS: q.Config().Buffer.Pages().Addrs()})
	return command.Result{}
}

func (f *function) destroyCQ(c *command.Call) command.Result {
	n := number24(c)
	q, ok := f.cqs.Get(n)
	if !ok {
		return refuse(prm.StatusBadResource, synNoCQ, "no CQ %#x", n)
	}
	if q.Held() {
		return refuse(prm.StatusBadResourceState, synInUse, "%d queues complete to CQ %#x", q.Holders(), n)
	}
	q.Forget()
	f.events.Get(q.Config().EQN).Drop()
	f.dropUAR(q.Config().UAR)
	q.Config().Uses.Drop()
	f.cqs.Remove(n)
	return command.Result{}
}

// dropUAR lets go of a doorbell page.
func (f *function) dropUAR(page uint32) {
	if u, ok := f.uars.Get(page); ok {
		u.Drop()
	}
}

// checkRecord checks the address of a doorbell record.
func checkRecord(addr uint64) command.Result {
	if addr == 0 || addr&(queue.RecordSize-1) != 0 {
		return refuse(prm.StatusBadParameter, synRecordAddress, "dbr_addr %#x: not a multiple of %d", addr, queue.RecordSize)
	}
	return command.Result{}
}

// wqMemory is what a work queue uses of the host's memory.
type wqMemory struct {
	ring   queue.Buffer
	record queue.Record
	uses   object.Uses
}

// wqMemory checks what a WQ context says of its ring and doorbell record. list holds the pages.
func (f *function) wqMemory(wq *prm.WQContext, list []byte, minStride, maxStride uint8) (m wqMemory, r command.Result) {
	if wq.SHAMPOEnable {
		return m, refuse(prm.StatusBadParameter, synWQFeature, "SHAMPO is not supported")
	}
	if wq.LogWQStride < minStride || wq.LogWQStride > maxStride {
		return m, refuse(prm.StatusBadParameter, synWQStride, "log_wq_stride %d: %d to %d", wq.LogWQStride, minStride, maxStride)
	}
	if wq.LogWQSz > logMaxWQSize {
		return m, refuse(prm.StatusBadParameter, synLogSize, "log_wq_sz %d: at most %d", wq.LogWQSz, logMaxWQSize)
	}
	if m.record, r = f.recordMemory(place{wq.DBRUMEMValid, wq.DBRUMEMID, wq.DBRAddr}, &m.uses); !r.OK() {
		return m, r
	}
	m.ring, r = f.ringMemory(place{wq.WQUMEMValid, wq.WQUMEMID, wq.WQUMEMOffset}, list, ringShape{
		bytes: 1 << (wq.LogWQStride + wq.LogWQSz), logPage: wq.LogWQPgSz, offset: wq.PageOffset, offsetUnits: 64,
	}, false, &m.uses)
	return m, r
}

// receiveWQ makes the ring of an RQ or RMP.
func (f *function) receiveWQ(wq *prm.WQContext, list []byte) (*queue.WQ, command.Result) {
	c := queue.WQConfig{LogSize: wq.LogWQSz, LogStride: wq.LogWQStride}
	minStride := uint8(minRQStride)
	switch wq.WQType {
	case prm.WQTypeCyclic:
	case prm.WQTypeLinkedList:
		c.Linked = true
	case prm.WQTypeLinkedListStriding, prm.WQTypeCyclicStriding:
		c.Linked = wq.WQType == prm.WQTypeLinkedListStriding
		// Four bits with a sign: ext_stride_num_range.
		log := strideNumBase + int(int8(wq.LogWQENumOfStrides<<4)>>4)
		if log < minLogStrides || log > maxLogStrides {
			return nil, refuse(prm.StatusBadParameter, synStrides, "log_wqe_num_of_strides %#x: 2^%d strides, want 2^%d to 2^%d",
				wq.LogWQENumOfStrides, log, minLogStrides, maxLogStrides)
		}
		c.Strides, c.LogStrideSize, c.Shift = 1<<log, strideSizeBase+wq.LogWQEStrideSize, wq.TwoByteShiftEn
	default:
		return nil, refuse(prm.StatusBadParameter, synWQType, "wq_type %d", wq.WQType)
	}
	if wq.WQType != prm.WQTypeCyclic {
		minStride++ // the next segment
	}
	if c.Strides == 0 && wq.TwoByteShiftEn {
		return nil, refuse(prm.StatusBadParameter, synWQFeature, "two_byte_shift_en is for striding queues")
	}
	m, r := f.wqMemory(wq, list, minStride, maxRQStride)
	if !r.OK() {
		return nil, r
	}
	c.Buffer, c.Record, c.Uses = m.ring, m.record, m.uses
	return queue.NewWQ(c), r
}

// Striding WQEs: what the fields of a context count from, and the limits of strides, as log2.
const (
	strideNumBase  = 9
	strideSizeBase = 6
	minLogStrides  = 3
	maxLogStrides  = 13
)

// transition checks a MODIFY of a queue's state: what the driver believes it to be, and where it is to go.
func transition(now, believed, to prm.QueueState) command.Result {
	if believed != now {
		return refuse(prm.StatusBadQPState, synQueueState, "the queue is in %v, not %v", now, believed)
	}
	switch to {
	case prm.QueueStateRST, prm.QueueStateRDY, prm.QueueStateERR:
	default:
		return refuse(prm.StatusBadParameter, synTransition, "state %d does not exist", to)
	}
	if now == prm.QueueStateERR && to == prm.QueueStateRDY {
		return refuse(prm.StatusBadQPState, synTransition, "from %v to %v only through %v", now, to, prm.QueueStateRST)
	}
	return command.Result{}
}
