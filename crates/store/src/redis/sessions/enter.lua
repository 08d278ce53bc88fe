-- A session of a tenant is to be. KEYS: places, ages, uses, uses of the principal, how many of each
-- revision. ARGV: the session, its place, now, how many the principal may have, how many the tenant, the
-- net (ms), 1 when it is there already and only its entry is missing, its revision. Answers OK; or EXISTS and the place; or PRINCIPAL or TENANT and
-- their number; or EVICT and the sessions that must make room, each with its place.
local id, place, now = ARGV[1], ARGV[2], ARGV[3]
local there = redis.call('HGET', KEYS[1], id)
if there then
  return { 'EXISTS', there }
end
local victims = {}
if ARGV[7] ~= '1' then
  local mine, all = redis.call('ZCARD', KEYS[4]), redis.call('ZCARD', KEYS[2])
  local of_principal = math.max(mine + 1 - tonumber(ARGV[4]), 0)
  local of_tenant = math.max(all + 1 - of_principal - tonumber(ARGV[5]), 0)
  -- Who has an open stream is in use until a moment that is still to come.
  if redis.call('ZCOUNT', KEYS[4], '-inf', now) < of_principal then
    return { 'PRINCIPAL', mine }
  end
  if redis.call('ZCOUNT', KEYS[3], '-inf', now) < of_principal + of_tenant then
    return { 'TENANT', all }
  end
  of_principal = math.min(of_principal, 100)
  of_tenant = math.min(of_tenant, 100)
  local chosen = {}
  local function choose(key, most, limit)
    local found = redis.call('ZRANGEBYSCORE', key, '-inf', now, 'LIMIT', 0, limit)
    for i = 1, #found do
      if most > 0 and not chosen[found[i]] then
        chosen[found[i]] = true
        victims[#victims + 1] = found[i]
        victims[#victims + 1] = redis.call('HGET', KEYS[1], found[i])
        most = most - 1
      end
    end
  end
  choose(KEYS[4], of_principal, of_principal)
  choose(KEYS[3], of_tenant, of_principal + of_tenant)
end
if #victims > 0 then
  return { 'EVICT', victims }
end
redis.call('HSET', KEYS[1], id, place .. ARGV[8])
redis.call('HINCRBY', KEYS[5], ARGV[8], 1)
redis.call('ZADD', KEYS[2], now, id)
redis.call('ZADD', KEYS[3], now, id)
redis.call('ZADD', KEYS[4], now, id)
for i = 1, 5 do
  redis.call('PEXPIRE', KEYS[i], ARGV[6])
end
return { 'OK' }
