/* Orders: the lines of an order, and a flag that says that it is placed.
 *
 * Wrong: everything is stored, written back and fenced, but the flag first. Between the two fences the order is placed
 * and empty, and a crash there keeps it so.
 * Right: the order is durable before its flag is stored.
 *
 * check: none
 * assert: not-ordered @ order-store
 * explore: yes
 * symptom: exit
 * explored: recovery-error @ order-store|place
 */
#include "../pm.h"

enum { ORDERS = 3 };

struct order {
    PM_ALIGNED uint64_t item;
    uint64_t quantity;
    PM_ALIGNED uint64_t placed;
};

struct pool {
    PM_ALIGNED uint64_t magic;
    struct order orders[ORDERS];
};

static void fill(struct order *order, int i)
{
    order->item = 500 + (uint64_t)i; /* @order-store */
    order->quantity = 2 + (uint64_t)i; /* @order-store */
    pm_persist(order, 2 * sizeof(uint64_t));
}

static void place(struct order *order)
{
    order->placed = 1;
    pm_persist(&order->placed, sizeof order->placed);
}

static void open_pool(struct pool *pool)
{
    pm_create(&pool->magic);
}

static void operation(struct pool *pool, int i)
{
    struct order *order = &pool->orders[i];
#ifdef BUG
    place(order); /* @place */
    fill(order, i);
#else
    fill(order, i);
    place(order);
#endif
    PM_ASSERT_ORDERED(order, 2 * sizeof(uint64_t), &order->placed, sizeof order->placed);
    pm_ack(i);
}

static void check(struct pool *pool)
{
    for (uint64_t i = 0; i < ORDERS; i++) {
        struct order *order = &pool->orders[i];
        if (!order->placed)
            continue;
        if (order->item != 500 + i || order->quantity != 2 + i)
            pm_fail("order %lu is placed and incomplete", i);
        pm_print("%lu of item %lu\n", order->quantity, order->item);
    }
}

PM_MAIN(ORDERS)
