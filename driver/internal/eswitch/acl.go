package eswitch

import (
	"context"
	"errors"

	"cxkit/prm"
)

// Policy is what a vport of the legacy mode may send and gets.
type Policy struct {
	// Spoof: only frames from MAC.
	Spoof bool
	MAC   MAC
	// VLAN: the vport sends untagged frames, which get a tag, and gets frames of the VLAN, whose tag goes.
	VLAN uint16
	Tag  bool
}

// ACL is the tables of a policy in force.
type ACL struct {
	config  Config
	vport   uint16
	ingress *check
	egress  *check
}

// check is a table that lets one kind of frame pass.
type check struct {
	table   *table
	entries []entry
}

// NewACL puts a policy into force.
func NewACL(ctx context.Context, config Config, vport uint16, p Policy) (*ACL, error) {
	a := &ACL{config: config, vport: vport}
	var err error
	if p.Spoof || p.Tag {
		var mask, value prm.MatchParam
		if p.Spoof {
			mask.Outer.SMAC, value.Outer.SMAC = MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, p.MAC
		}
		mask.Outer.CVLANTag = p.Tag
		a.ingress, err = a.allow(ctx, prm.FlowTableESWIngressACL, &mask, &value)
	}
	if p.Tag && err == nil {
		mask := prm.MatchParam{Outer: prm.MatchLayer24{CVLANTag: true, FirstVID: 0xfff}}
		value := prm.MatchParam{Outer: prm.MatchLayer24{CVLANTag: true, FirstVID: p.VLAN}}
		a.egress, err = a.allow(ctx, prm.FlowTableESWEgressACL, &mask, &value)
	}
	if err != nil {
		return nil, errors.Join(err, a.Close(context.WithoutCancel(ctx)))
	}
	return a, nil
}

// allow makes a table that drops all but what has value under mask.
func (a *ACL) allow(ctx context.Context, kind prm.FlowTableType, mask, value *prm.MatchParam) (c *check, err error) {
	c = &check{}
	fail := func(err error) (*check, error) {
		return nil, errors.Join(err, c.close(context.WithoutCancel(ctx)))
	}
	if c.table, err = newTable(ctx, &a.config, place{kind: kind, vport: a.vport}, 2, nil); err != nil {
		return nil, err
	}
	for _, r := range []struct {
		enable      prm.MatchCriteria
		mask, value *prm.MatchParam
		do          prm.FlowAction
	}{
		{prm.MatchOuterHeaders, mask, value, prm.FlowActionAllow},
		{0, &prm.MatchParam{}, &prm.MatchParam{}, prm.FlowActionDrop},
	} {
		g, err := c.table.group(ctx, 1, r.enable, r.mask)
		if err != nil {
			return fail(err)
		}
		e, err := g.add(ctx, r.value, action{do: r.do})
		if err != nil {
			return fail(err)
		}
		c.entries = append(c.entries, e)
	}
	return c, nil
}

func (c *check) close(ctx context.Context) error {
	if c == nil {
		return nil
	}
	var errs []error
	for _, e := range c.entries {
		errs = append(errs, e.remove(ctx))
	}
	return errors.Join(append(errs, c.table.destroy(ctx))...)
}

// Close ends the policy.
func (a *ACL) Close(ctx context.Context) error {
	if a == nil {
		return nil
	}
	return errors.Join(a.ingress.close(ctx), a.egress.close(ctx))
}
