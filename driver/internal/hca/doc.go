// Package hca brings a ConnectX function up and takes it down: from reset to a function that can create
// queues, and back.
//
// Bring-up is a list of steps (steps.go), in the order that hardware needs (00-overview §6; Linux main.c,
// rdma-core mlx5_vfio.c, Snabb connectx.lua). A step that has done something registers how to undo it, so
// that a failure half way, and Down, take back exactly what was done, in reverse. Down is bounded in
// time, also when firmware is silent or the device is gone, and names what it could not get back.
package hca
