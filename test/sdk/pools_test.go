package sdk_test

import (
	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/client"
)

func (x *tour) pools() {
	ctx := x.Context()
	list, err := x.c.Templates(ctx, client.ListOptions{})
	x.ok(err)
	if len(list) == 0 {
		x.Fatal("no template")
	}
	idle, blank := 0, ""
	made, err := x.c.CreatePool(ctx, client.PoolRequest{
		Name: "warm", TemplateID: list[0].ID, MinIdle: &idle, IdempotencyKey: client.NewKey(),
	})
	x.ok(err)
	age, windows := int64(3600), []api.PoolWindow{{From: "08:00", To: "09:00"}}
	x.ok(x.c.UpdatePool(ctx, made.ID, client.PoolRequest{MaxAge: &age, Schedule: &windows, Tag: &blank}))
	one, err := x.c.Pool(ctx, made.ID)
	x.ok(err)
	all, err := x.c.Pools(ctx, client.ListOptions{Filter: "name:warm"})
	x.ok(err)
	if len(all) != 1 || one.MaxAge != age || len(one.Schedule) != 1 || one.Name != "warm" || one.GroupID != nil {
		x.Errorf("%+v %+v", all, one)
	}
	x.ok(x.c.DeletePool(ctx, made.ID))
}
